/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: ntx-mkmodel's options, from its command line or a test's text. */
#ifndef NTX_TESTS_MKMODEL_OPTIONS_H
#define NTX_TESTS_MKMODEL_OPTIONS_H

#include "tests/mkmodel/describe.h"

#define MK_HELP 0

/* Parses argv[1 ..] into o; texts still point into argv. Returns the index of the first argument that is not an
 * option; MK_HELP; or -1, with a text on stderr. */
int mk_options_take(struct mk_options *o, int argc, char **argv);

#endif
