/* Folder: the output's folder, and the other files of a model's folder (config, tokenizer, …).
 *
 * Nothing here follows a symbolic link when it writes or removes. Reading follows them: Hugging
 * Face's cache keeps every file behind one. A link to a folder is not followed.
 * Nothing becomes readable for more users than it was in the input. */
#ifndef DATA_WEIGHTS_FOLDER_H
#define DATA_WEIGHTS_FOLDER_H

#include "data/weights/parts.h"

/* Returns true if the folder holds anything. */
bool folder_used(const char *path);
/* Returns true if `path` is `folder` or lies inside it. */
bool folder_inside(const char *path, const char *folder);
/* Makes the folder, which must be this user's if it exists. Empties it unless `keep`. */
stow_status folder_make(const char *path, bool keep);
void folder_remove(const char *path);
/* Takes away the permissions for others that the folder `from` does not give. */
void folder_narrow(const char *path, const char *from);
/* Writes a small file with the permissions of `most`, at most. */
stow_status folder_write(const char *path, const void *bytes, size_t count, mode_t most);
/* Copies the other files of the input's folder into the output's, and brings config.json up to
 * date. Weights in other formats and links to folders are left out and counted. */
stow_status folder_carry(weights_job *j);

#endif
