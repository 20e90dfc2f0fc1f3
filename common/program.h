/* SPDX-License-Identifier: Apache-2.0 */
/* program.h: a program as its user meets it: options, --help and man page (deploy/pages), all from one struct. */
#ifndef NTX_COMMON_PROGRAM_H
#define NTX_COMMON_PROGRAM_H

#include <argp.h>

struct ntx_program {
    const char *name;  /* "ntx-iod" */
    unsigned section;  /* of its man page: 1 or 8 */
    const char *brief; /* its purpose, without a full stop: "read weights from the drive" */
    const char *doc;   /* one paragraph */
    const char *more;  /* another one, behind the options; NULL: none */
    const struct argp_option *options;
    const char *examples; /* two or more lines, each after two blanks */
    /* for the man page: lines "SUBJECT\tTEXT\n"; NULL: none. exits: beside those of all programs. */
    const char *files, *environment, *exits;
    const char *see; /* "ntx(1), ntx.conf(5)" */
};

/* Parses the arguments by argp, with p's options and texts. */
void ntx_program_parse(const struct ntx_program *p, argp_parser_t parser, int argc, char **argv, void *input);

/* Ends the process with argp_err_exit_status if there is an option that neither argp nor its children have; the message
 * names the nearest one. name: of the program, for the message. */
void ntx_check_options(const struct argp *argp, const char *name, int argc, char **argv);

#endif
