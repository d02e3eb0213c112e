#define _GNU_SOURCE // O_PATH

// move-mount --move --beneath FROM TO: moves the mount FROM below that which is at TO (move_mount(2)). NixOS's program of
// that name is in no package registry, and util-linux has it from 2.42 on.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// From linux/mount.h, which is older than the second on some machines that build.
#define MOVE_MOUNT_F_EMPTY_PATH 0x4
#define MOVE_MOUNT_BENEATH 0x200

int main(int argc, char **argv)
{
    if (argc != 5 || strcmp(argv[1], "--move") || strcmp(argv[2], "--beneath")) {
        fputs("usage: move-mount --move --beneath FROM TO\n", stderr);
        return 2;
    }
    int from = open(argv[3], O_PATH | O_CLOEXEC);
    if (from < 0) {
        perror(argv[3]);
        return 1;
    }
    if (syscall(SYS_move_mount, from, "", AT_FDCWD, argv[4], MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_BENEATH)) {
        perror("move_mount");
        return 1;
    }
    return 0;
}
