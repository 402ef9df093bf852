/* Preloaded into every program of the image sandbox-office (/etc/ld.so.preload): two things that programs expect of a machine
 * and that a sandbox does not have. It asks the kernel for nothing that a run could not do without it.
 *
 * A unix socket. LibreOffice does not start without one that a second start of it could find. A run has no socket(), and this
 * needs none: nobody is to connect. Where the kernel refuses one, the program gets an end of a socketpair, and LibreOffice's own
 * program may bind and listen to it. Nothing ever arrives there, and connect() stays the kernel's.
 *
 * A name of the user. Each pod has a user id of its own, so no file of an image has an entry for it. Without one LibreOffice has
 * no home, and Python's getuser() fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The one that LibreOffice listens to; -1: none. */
static int listening = -1;

int socket(int domain, int type, int protocol) {
    int fd = syscall(SYS_socket, domain, type, protocol);
    int refused = errno;
    int ends[2];
    if (fd >= 0 || domain != AF_UNIX || refused != EPERM || socketpair(domain, type, protocol, ends) != 0) {
        errno = refused;
        return fd;
    }
    close(ends[1]);
    return ends[0];
}

int bind(int fd, const struct sockaddr *address, socklen_t length) {
    int outcome = syscall(SYS_bind, fd, address, length);
    int refused = errno;
    int ends[2];
    if (outcome == 0 || refused != EPERM || listening != -1 || address->sa_family != AF_UNIX ||
        strcmp(program_invocation_short_name, "soffice.bin") != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        errno = refused;
        return outcome;
    }
    /* The other end stays open: waiting ends when LibreOffice shuts its own end down, and not before. */
    outcome = dup3(ends[0], fd, O_CLOEXEC) == fd ? 0 : -1;
    close(ends[0]);
    listening = outcome == 0 ? fd : -1;
    return outcome;
}

int listen(int fd, int backlog) {
    return fd == listening ? 0 : (int)syscall(SYS_listen, fd, backlog);
}

int accept(int fd, struct sockaddr *address, socklen_t *length) {
    if (fd != listening) return syscall(SYS_accept, fd, address, length);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    while (poll(&end, 1, -1) < 0 && errno == EINTR) {
    }
    listening = -1;
    /* What the kernel says of a listening socket that was shut down. */
    errno = EINVAL;
    return -1;
}

typedef int by_uid(uid_t, struct passwd *, char *, size_t, struct passwd **);

int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **found) {
    static const char name[] = "knack", shell[] = "/bin/sh";
    const char *home = getenv("HOME");
    by_uid *next = (by_uid *)dlsym(RTLD_NEXT, "getpwuid_r");
    int error = next ? next(uid, entry, buffer, size, found) : ENOENT;
    if ((error == 0 && *found) || error == ERANGE || uid != getuid() || !home) return error;
    if (size < sizeof name + sizeof shell + strlen(home) + 1) return ERANGE;
    *entry = (struct passwd){.pw_name = buffer, .pw_uid = uid, .pw_gid = getgid()};
    entry->pw_shell = stpcpy(entry->pw_name, name) + 1;
    entry->pw_dir = stpcpy(entry->pw_shell, shell) + 1;
    entry->pw_gecos = entry->pw_passwd = stpcpy(entry->pw_dir, home);
    *found = entry;
    return 0;
}

struct passwd *getpwuid(uid_t uid) {
    static struct passwd entry;
    static char buffer[4096];
    struct passwd *found = NULL;
    int error = getpwuid_r(uid, &entry, buffer, sizeof buffer, &found);
    if (error) errno = error;
    return error ? NULL : found;
}
