/* field.h: the fields of a request's body: a table says which there are and what each must be, and one walk checks a body against it. */
#ifndef NTX_CLIENT_GATEWAY_FIELD_H
#define NTX_CLIENT_GATEWAY_FIELD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/gateway/fault.h"

enum ntx_field_kind {
    NTX_FIELD_ANY,    /* read elsewhere */
    NTX_FIELD_SKIP,   /* says something about the client only: changes no answer */
    NTX_FIELD_BOOL,   /* bool */
    NTX_FIELD_COUNT,  /* uint32_t from least to most */
    NTX_FIELD_REAL,   /* float from least to most */
    NTX_FIELD_SEED,   /* uint64_t, any integer */
    NTX_FIELD_ABSENT, /* ntx has no such thing: only what asks for nothing is taken (null, false, 0, 1 where neutral is 1, "", [], {}) */
};

struct ntx_field {
    const char *name;
    enum ntx_field_kind kind;
    size_t at;           /* offset in the struct */
    double least, most;  /* ABSENT: least is the neutral number */
    const char *instead; /* ABSENT: said to who asks for it, or NULL */
};

/* Checks body against the table (ended by a NULL name) and writes into to. 0, or -1 with f. */
int ntx_fields_read(const struct ntx_field *table, const json_t *body, void *to, struct ntx_fault *f);

#endif
