/* SPDX-License-Identifier: Apache-2.0 */
/* options_impl.h: the table of option groups (options_table.c), which options.c turns into argp's tables. */
#ifndef NTX_CLIENT_OPTIONS_IMPL_H
#define NTX_CLIENT_OPTIONS_IMPL_H

#include "client/options.h"

struct option_group {
    unsigned group;                    /* NTX_OPT_* */
    struct ntx_settings here;          /* the entries, where the group has its own */
    const struct ntx_settings *shared; /* or those of proto/settings_load.c */
    size_t base;                       /* offset in struct ntx_options of the struct that the entries fill */
    const char *title;                 /* in the help; neighbours may share one */
};

enum { NTX__N_OPTION_GROUPS = 34 };
extern const struct option_group ntx__option_groups[NTX__N_OPTION_GROUPS];

/* Keys for argp: entries without a letter have keys from NTX__ENTRIES on; a group has fewer entries than
 * NTX__GROUP_KEYS. */
enum { NTX__USAGE = 256, NTX__HELP_ALL, NTX__ENTRIES, NTX__GROUP_KEYS = 64 };
const struct ntx_settings *ntx__option_entries(const struct option_group *g);
int ntx__option_key(const struct option_group *g, unsigned entry);

#endif
