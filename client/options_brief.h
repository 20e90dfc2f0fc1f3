/* SPDX-License-Identifier: Apache-2.0 */
/* options_brief.h: the options that a command's --help shows, each with a line of its own; --help-all shows all. */
#ifndef NTX_CLIENT_OPTIONS_BRIEF_H
#define NTX_CLIENT_OPTIONS_BRIEF_H

/* The short text of option `name` of `group` (NTX_OPT_*), at most 49 characters; NULL: only --help-all shows it. */
const char *ntx__option_brief(unsigned group, const char *name);

#endif
