/* What printing and templates have of each other; hidden, so that nothing of pmacct's is taken for it. */
#include <arpa/inet.h>
#include <stdio.h>

#pragma GCC visibility push(hidden)

extern char printed_address[INET6_ADDRSTRLEN]; /* the last: pmacct prints a template's exporter before it opens the file */

extern FILE *template_stream; /* to which it appends a template */

/* Take what pmacct appends; return whether there is nothing left to do for it. */
int keep_template(FILE *stream, const char *text);

#pragma GCC visibility pop
