/* Loaded with quick_printf.c: a quicker file of templates, whose lines may have any length.
 *
 * pmacct has a line of JSON for each template. When one comes again, changed or not, it parses lines until it finds the
 * template's, copies all others to a file ("r+", ".copy"), removes and renames, and appends the template: 12 us for each
 * line of the file, in the process that reads the socket. Here it finds what its exporter has among short lines, and
 * nothing is copied: what it appends takes the place of the line that it found, and the file is written if that changed.
 */
#define _GNU_SOURCE
#include "kept_templates.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACE "template %zu"

static struct line { char *text, agent[INET6_ADDRSTRLEN]; } *lines;
static size_t count, next, found; /* found: 1 for the first line */
static off_t bytes;               /* that the file should have */
static const char *templates;     /* its path */
FILE *template_stream;

static int ends_in(const char *path, const char *end) {
  size_t length = strlen(path), size = strlen(end);
  return length >= size && !strcmp(path + length - size, end);
}

static void keep(size_t at, const char *text) {
  char *copy = strdup(text);
  struct line *room = at < count ? lines : realloc(lines, (count + 1) * sizeof *lines);
  if (room) lines = room;
  if (!room || !copy) return;
  if (at < count) {
    bytes -= (off_t)strlen(lines[at].text) + 1;
    free(lines[at].text);
  } else {
    count++;
  }
  lines[at] = (struct line){copy, ""};
  bytes += (off_t)strlen(copy) + 1;
  sscanf(copy, "{\"agent\": \"%45[^\"]", lines[at].agent);
}

/* Tell the next line by its place: pmacct has room for 8,223 bytes, less than a template of 100 fields may take. */
static ssize_t tell(void *cookie, char *to, size_t size) {
  (void)cookie;
  return next < count ? snprintf(to, size, PLACE "\n", next++) : 0;
}

/* Show the next line of the exporter, without its fields. */
static ssize_t show(void *cookie, char *to, size_t size) {
  (void)cookie;
  while (next < count && strcmp(lines[next].agent, printed_address)) next++;
  found = next < count ? ++next : 0;
  return found ? snprintf(to, size, "%.*s[]}\n", (int)strcspn(lines[found - 1].text, "["), lines[found - 1].text) : 0;
}

int keep_template(FILE *stream, const char *text) {
  char copy[FILENAME_MAX];
  struct stat status;
  size_t at = found ? found - 1 : count;
  int is_new = !found, has_changed = is_new || strcmp(text, lines[at].text);
  template_stream = NULL;
  found = 0;
  if (has_changed) keep(at, text);
  if (is_new || (!has_changed && !fstat(fileno(stream), &status) && status.st_size == bytes)) return !is_new;
  snprintf(copy, sizeof copy, "%s.copy", templates);
  FILE *file = fopen64(copy, "w");
  if (!file) return 1;
  for (at = 0; at < count; at++) fprintf(file, "%s\n", lines[at].text);
  int has_failed = ferror(file);
  if (!fclose(file) && !has_failed) renameat(AT_FDCWD, copy, AT_FDCWD, templates);
  return 1;
}

FILE *fopen(const char *path, const char *mode) {
  if (ends_in(path, ".templates.copy")) return fopen64("/dev/null", mode);
  if (!ends_in(path, ".templates")) return fopen64(path, mode);
  if (!strcmp(mode, "r+")) return fdopen(memfd_create("templates", MFD_CLOEXEC), mode);
  if (*mode == 'r' && templates) {
    next = 0;
    return fopencookie(NULL, mode, (cookie_io_functions_t){.read = show});
  }
  FILE *file = fopen64(path, mode);
  if (*mode == 'a') template_stream = file;
  if (*mode != 'r') return file;
  templates = path; /* at the start, when pmacct reads all of it */
  char *text = NULL;
  for (size_t size = 0; file && getline(&text, &size, file) > 0;) {
    text[strcspn(text, "\n")] = '\0';
    keep(count, text);
  }
  free(text);
  if (!file) return NULL;
  fclose(file);
  return fopencookie(NULL, mode, (cookie_io_functions_t){.read = tell});
}

/* A template that `tell` has told by its place is what stands there. */
void *json_loads(const char *text, size_t flags, void *error) {
  void *(*jansson)(const char *, size_t, void *);
  size_t at;
  *(void **)&jansson = dlsym(RTLD_NEXT, "json_loads");
  if (sscanf(text, PLACE, &at) == 1 && at < count) text = lines[at].text;
  return jansson(text, flags, error);
}

int unlink(const char *path) {
  return ends_in(path, ".templates") ? 0 : unlinkat(AT_FDCWD, path, 0);
}

int rename(const char *from, const char *to) {
  return ends_in(from, ".templates.copy") ? 0 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

