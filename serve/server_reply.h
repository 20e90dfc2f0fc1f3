/* server_reply.h: any reply, by the main thread's own files (server_writer.c encodes it); what the engine says has functions of its own (server_writer.h). */
#ifndef NTX_SERVE_SERVER_REPLY_H
#define NTX_SERVE_SERVER_REPLY_H

#include "proto/ntx.pb-c.h"
#include "serve/server_writer.h"

void ntx_mail_reply(struct ntx_mailbox *b, struct ntx_writer *writer, const Ntx__Reply *r, bool last);

#endif
