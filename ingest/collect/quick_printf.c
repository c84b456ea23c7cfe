/* Loaded into nfacctd and sfacctd before libc (LD_PRELOAD): a quicker printf, and a quicker file of templates.
 *
 * pmacct writes each of a record's 21 columns with a call of its own, and libc reads the format anew each time: that is
 * more than a third of all that nfacctd does for a record. Here the few formats of its CSV are put together by hand;
 * any other goes to libc. What comes out is the same, to the byte (tests/ingest/test_quick_printf.py).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef __GLIBC__
#error "made for glibc: it writes into the buffers of its streams, as putc_unlocked does"
#endif

enum { DIGITS = 20, FRACTION = 6, QUAD = 16 }; /* of a number of 64 bits, of microseconds; "255.255.255.255" and NUL */
enum { ANOTHER = -2 }; /* format, or a text that is NULL: for libc */

static const char *(*libc_inet_ntop)(int, const void *, char *, socklen_t);

__attribute__((constructor)) static void find_libc(void) {
  *(void **)&libc_inet_ntop = dlsym(RTLD_NEXT, "inet_ntop");
}

/* Put a number's digits before `end`; return where they begin. */
static char *digits_before(char *end, uint64_t value) {
  do {
    *--end = (char)('0' + value % 10);
  } while (value /= 10);
  return end;
}

static char *put_digits(char *to, uint64_t value) {
  char digits[DIGITS], *from = digits_before(digits + DIGITS, value);
  size_t count = (size_t)(digits + DIGITS - from);
  memcpy(to, from, count);
  return to + count;
}

/* Write into the buffer where there is room, of a stream that waits until it is full. */
static int append(FILE *stream, const char *text, size_t count) {
  if (stream->_IO_write_end - stream->_IO_write_ptr > (ptrdiff_t)count && !__flbf(stream)) {
    memcpy(stream->_IO_write_ptr, text, count);
    stream->_IO_write_ptr += count;
    return 0;
  }
  return fwrite_unlocked(text, 1, count, stream) == count ? 0 : -1;
}

/* A separator and a value: "%s%u", "%s%d", "%s%s", "%s%lu", "%s%lu\n". */
static int print_column(FILE *stream, const char *format, va_list values) {
  char number[DIGITS + 2], *end = number + DIGITS + 1;
  const char *separator = va_arg(values, const char *), *text;
  if (format[3] == 'u' && !format[4]) {
    text = digits_before(end, va_arg(values, unsigned));
  } else if (format[3] == 'd' && !format[4]) {
    int value = va_arg(values, int);
    char *from = digits_before(end, value < 0 ? -(uint64_t)value : (uint64_t)value);
    if (value < 0) *--from = '-';
    text = from;
  } else if (format[3] == 's' && !format[4]) {
    text = va_arg(values, const char *);
    if (text) end = (char *)text + strlen(text);
  } else if (format[3] == 'l' && format[4] == 'u' && (!format[5] || (format[5] == '\n' && !format[6]))) {
    text = digits_before(end, va_arg(values, unsigned long));
    if (format[5]) *end++ = '\n';
  } else {
    return ANOTHER;
  }
  if (!separator || !text) return ANOTHER;
  size_t first = strlen(separator), second = (size_t)(end - text);
  int is_shared = !__libc_single_threaded;
  if (is_shared) flockfile(stream);
  int has_failed = append(stream, separator, first) || append(stream, text, second);
  if (is_shared) funlockfile(stream);
  return has_failed ? -1 : (int)(first + second);
}

/* pmacct's file of templates. For each that comes again, changed or not, pmacct parses lines of JSON until it finds the
 * template's, copies all others to a file ("r+", ".copy"), removes and renames, and appends the template: 12 us for each
 * line of the file, in the process that reads the socket. Here it finds what its exporter has among short lines, and
 * nothing is copied: what it appends takes the place of the line that it found, and the file is written if that changed.
 */
static struct line { char *text, agent[INET6_ADDRSTRLEN]; } *lines;
static size_t count, next, found; /* found: 1 for the first line */
static off_t bytes;               /* that the file should have */
static const char *templates;     /* its path */
static FILE *saving;
static char last_address[INET6_ADDRSTRLEN]; /* printed: pmacct prints a template's exporter before it opens the file */

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

/* Show the next line of the exporter, without its fields. */
static ssize_t show(void *cookie, char *to, size_t size) {
  (void)cookie;
  while (next < count && strcmp(lines[next].agent, last_address)) next++;
  found = next < count ? ++next : 0;
  return found ? snprintf(to, size, "%.*s[]}\n", (int)strcspn(lines[found - 1].text, "["), lines[found - 1].text) : 0;
}

/* Take what pmacct appends; return whether there is nothing left to do for it. */
static int save(FILE *stream, const char *text) {
  char copy[FILENAME_MAX];
  struct stat status;
  size_t at = found ? found - 1 : count;
  int is_new = !found, has_changed = is_new || strcmp(text, lines[at].text);
  saving = NULL;
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
  if (*mode == 'a') saving = file;
  if (*mode != 'r') return file;
  templates = path; /* at the start, when pmacct reads all of it */
  char *text = NULL;
  for (size_t size = 0; file && getline(&text, &size, file) > 0;) {
    text[strcspn(text, "\n")] = '\0';
    keep(count, text);
  }
  free(text);
  if (file) rewind(file);
  return file;
}

int unlink(const char *path) {
  return ends_in(path, ".templates") ? 0 : unlinkat(AT_FDCWD, path, 0);
}

int rename(const char *from, const char *to) {
  return ends_in(from, ".templates.copy") ? 0 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int __fprintf_chk(FILE *stream, int flag, const char *format, ...) {
  int result = ANOTHER;
  va_list values;
  (void)flag; /* has libc look for formats that come from outside: pmacct has none */
  if (format[0] == '%' && format[1] == 's' && format[2] == '%') {
    va_start(values, format);
    result = print_column(stream, format, values);
    va_end(values);
  } else if (stream == saving && !strcmp(format, "%s\n")) {
    va_start(values, format);
    if (save(stream, va_arg(values, const char *))) result = 0;
    va_end(values);
  }
  if (result == ANOTHER) {
    va_start(values, format);
    result = vfprintf(stream, format, values);
    va_end(values);
  }
  return result;
}

/* A moment: "%ld.%.6ld". */
int __snprintf_chk(char *to, size_t size, int flag, size_t room, const char *format, ...) {
  va_list values;
  int result;
  (void)flag;
  if (size > room) __builtin_trap(); /* as libc: more is asked for than there is */
  va_start(values, format);
  if (size > DIGITS + 1 + FRACTION && !strcmp(format, "%ld.%.6ld")) {
    long second = va_arg(values, long), fraction = va_arg(values, long);
    if (second >= 0 && fraction >= 0 && fraction <= 999999) {
      char *end = put_digits(to, (uint64_t)second);
      *end++ = '.';
      for (int i = FRACTION - 1; i >= 0; i--, fraction /= 10) end[i] = (char)('0' + fraction % 10);
      end[FRACTION] = '\0';
      va_end(values);
      return (int)(end + FRACTION - to);
    }
    va_end(values);
    va_start(values, format);
  }
  result = vsnprintf(to, size, format, values);
  va_end(values);
  return result;
}

const char *inet_ntop(int family, const void *address, char *to, socklen_t size) {
  if (family != AF_INET || size < QUAD) {
    const char *text = libc_inet_ntop(family, address, to, size);
    return text ? strcpy(last_address, text), text : NULL;
  }
  char *end = to;
  for (int i = 0; i < 4; i++) {
    end = put_digits(end, ((const unsigned char *)address)[i]);
    *end++ = i < 3 ? '.' : '\0';
  }
  memcpy(last_address, to, QUAD);
  return to;
}
