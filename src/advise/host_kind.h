/* Host kind: what an object of a report is, by its type and by what it holds. Called by the causes
 * in host_growth.c and by the advice in host_less.c. */
#ifndef ADVISE_HOST_KIND_H
#define ADVISE_HOST_KIND_H

#include "advise/host_case.h"

/* A table or an array, mostly of Python strings. */
bool host_is_text_table(const host_object *o);
/* An object of a class that consists of many others, such as a graph of networkx. */
bool host_is_whole_structure(const host_object *o);
/* Each element keeps much that the container does not list: a tag of a page keeps the page. */
bool host_is_of_trees(const host_object *o);
/* Exceptions. */
bool host_is_of_errors(const host_object *o);
/* What one iterator of itertools.tee has not read yet. */
bool host_is_tee(const host_object *o);
/* Many Python objects, each with its header and its reference. */
bool host_is_of_objects(const host_object *o);
bool host_is_made_of(const host_object *o, const char *types);
/* A collection of large objects, such as a list of arrays, or a dict of a few lists of them; or of
 * long texts. */
bool host_is_collection(const host_object *o);
bool host_is_dict(const host_object *o);
bool host_is_queue(const host_object *o);
/* A collection of small parts of large arrays. */
bool host_is_of_views(const host_object *o);
/* io.StringIO, io.BytesIO */
bool host_is_memory_file(const host_object *o);
/* A text, bytes or a file in memory. */
bool host_is_text(const host_object *o);
/* Returns whether the line that made it reads a file with pandas. */
bool host_is_read(const host_object *o);
/* Columns of lists and other objects, not of strings. */
bool host_is_of_cells(const host_object *o);

#endif
