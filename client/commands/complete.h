/* SPDX-License-Identifier: Apache-2.0 */
/* complete.h: `ntx complete -- WORD...`, which the shells' completion calls (deploy/completion): the words behind `ntx`
 * up to the cursor, the last of which is completed. It prints a line "VALUE\tTEXT" for each way to go on that begins
 * like that word, and these lines:
 *
 *   :files      names of files, too
 *   :gguf       names of GGUF files, too
 *   :dirs       names of folders, too
 *   :more       a value may be followed by more characters: no blank after it */
#ifndef NTX_CLIENT_COMMANDS_COMPLETE_H
#define NTX_CLIENT_COMMANDS_COMPLETE_H

/* Returns the exit code. words: from "--" on. */
int ntx_complete(int n, char **words);

#endif
