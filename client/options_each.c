/* SPDX-License-Identifier: Apache-2.0 */
/* options_each.c: the option table as help, completion and man pages read it. */
#include <stdio.h>
#include <string.h>

#include "client/options_impl.h"

const struct argp_option ntx_common_options[] = {
    {"verbose", 'v', NULL, 0, "more messages, and the daemons' logs", -1},
    {"help", 'h', NULL, 0, "the usual options", -1},
    {NULL, '?', NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, -1},
    {"help-all", NTX__HELP_ALL, NULL, 0, "all options, with more words", -1},
    {"usage", NTX__USAGE, NULL, 0, "all options in a few lines", -1},
    {"version", 'V', NULL, 0, "the version", -1},
    {0},
};

const struct ntx_settings *ntx__option_entries(const struct option_group *g)
{
    return g->shared ? g->shared : &g->here;
}

int ntx__option_key(const struct option_group *g, unsigned entry)
{
    int letter = ntx__option_entries(g)->entry[entry].key;
    return letter ? letter : NTX__ENTRIES + (int)(g - ntx__option_groups) * NTX__GROUP_KEYS + (int)entry;
}

const char *ntx_option_help(const struct ntx_setting *s, char buf[NTX_OPTION_HELP])
{
    const char *at = s->preset ? strchr(s->help, '$') : NULL;
    if (!at)
        return s->help;
    snprintf(buf, NTX_OPTION_HELP, "%.*s%s%s", (int)(at - s->help), s->help, s->preset, at + 1);
    return buf;
}

bool ntx_command_takes_model(const struct ntx_command *cmd)
{
    return !strncmp(cmd->args + (*cmd->args == '['), "MODEL", 5);
}

unsigned ntx_command_groups(const struct ntx_command *cmd)
{
    unsigned groups = cmd->groups;
    if (ntx_command_takes_model(cmd))
        groups |= NTX_OPT_MODEL;
    if (strstr(cmd->args, "PROMPT"))
        groups |= NTX_OPT_PROMPT;
    return groups;
}

void ntx_command_options(const struct ntx_command *cmd,
                         void (*see)(void *arg, const char *title, const struct ntx_setting *s), void *arg)
{
    const unsigned selected = ntx_command_groups(cmd);
    for (const struct option_group *g = ntx__option_groups; g < ntx__option_groups + NTX__N_OPTION_GROUPS; g++)
        for (unsigned i = 0; selected & g->group && i < ntx__option_entries(g)->n; i++) {
            const struct ntx_setting *s = &ntx__option_entries(g)->entry[i];
            if (s->help)
                see(arg, g->title, s);
        }
}
