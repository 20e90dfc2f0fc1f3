/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "client/commands/commands.h"
#include "client/http_conf.h"
#include "common/nearest.h"
#include "common/util.h"
#include "computed/plan/config_fit.h"

enum { BAD = 1 };

int ntx_cmd_config(struct ntx_options *o)
{
    static const struct ntx_config_checks checks = {ntx_config_fit, ntx_http_conf_check, true};
    struct ntx_near near;
    if (!strcmp(o->args[0], "check"))
        return ntx_config_check(o->n_args > 1 ? o->args[1] : NTX_CONF_FILE, &checks) ? BAD : 0;
    ntx_near_begin(&near, o->args[0], "ntx config ");
    ntx_near_offer_list(&near, "check");
    ntx_say("config: '%.100s' is no action of it%s", o->args[0],
            *near.hint ? near.hint : "; write ntx config check [FILE]");
    return NTX_EXIT_USAGE;
}
