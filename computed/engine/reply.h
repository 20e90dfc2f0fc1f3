/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h: sends any reply, for the main thread's files (reply_queue.c encodes it). The engine's replies have their own
 * functions in reply_queue.h. */
#ifndef NTX_COMPUTED_ENGINE_REPLY_H
#define NTX_COMPUTED_ENGINE_REPLY_H

#include "computed/engine/reply_queue.h"
#include "proto/ntx.pb-c.h"

void ntx_mail_reply(struct ntx_mailbox *b, struct ntx_reply_queue *replies, const Ntx__Reply *r, bool last);

#endif
