/* SPDX-License-Identifier: Apache-2.0 */
/* config_fit.h: whether the model of ntx.conf is one that ntx runs, and fits in its [model] ram. */
#ifndef NTX_COMPUTED_PLAN_CONFIG_FIT_H
#define NTX_COMPUTED_PLAN_CONFIG_FIT_H

#include "proto/config.h"

/* Reads the model's header, and reports to e what is wrong. A file that cannot be opened is reported by
 * proto/config_check.h. */
void ntx_config_fit(const struct ntx_config *c, struct ntx_config_errors *e);

#endif
