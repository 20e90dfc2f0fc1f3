/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h: any reply, by the main thread's own files (reply_queue.c encodes it); what the engine says has functions of
 * its own (reply_queue.h). */
#ifndef NTX_COMPUTED_ENGINE_REPLY_H
#define NTX_COMPUTED_ENGINE_REPLY_H

#include "computed/engine/reply_queue.h"
#include "proto/ntx.pb-c.h"

void ntx_mail_reply(struct ntx_mailbox *b, struct ntx_reply_queue *replies, const Ntx__Reply *r, bool last);

#endif
