#!/busybox sh
# SPDX-License-Identifier: Apache-2.0
# Process 1 of the booted machine: the userland, with the board's files over those of the kernel, and then `visit.sh` in it.
#
# In: /dev/vda, the userland; /board, what the kernel of the real board would show below /sys, /proc and /etc. Out:
# /dev/vdb, a tar file with what the visit left in /results. Device tree, CPU and memory are the running kernel's own.
b=/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for module in /modules/*.ko; do $b insmod "$module" || echo "init: $module does not load"; done
until [ -b /dev/vda ] && [ -b /dev/vdb ]; do $b sleep 0.1; done

$b mount -t tmpfs tmpfs /upper
$b mkdir /upper/files /upper/work
$b mount -t ext4 -o ro /dev/vda /lower
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root || $b poweroff -f

# what the real board's drivers would show stands over what this kernel shows
$b mount -t sysfs sysfs /real
$b mkdir -p /board/sys /board/proc /board/etc
$b mount -t overlay -o lowerdir=/board/sys:/real overlay /root/sys || $b poweroff -f
$b mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
$b mount -t proc proc /root/proc
for folder in /board/proc/*; do
  [ -d "$folder" ] || continue
  name=${folder#/board}
  $b mount -t tmpfs tmpfs "/root$name" && $b cp -r "$folder/." "/root$name/"
done
$b cp -r /board/etc/. /root/etc/
$b mount -t devtmpfs dev /root/dev
$b mkdir -p /root/dev/shm /root/results
$b mount -t tmpfs tmpfs /root/dev/shm
$b mount -t tmpfs tmpfs /root/tmp
$b ifconfig lo 127.0.0.1 up

$b chroot /root /bin/sh /visit.sh
$b tar -c -f /dev/vdb -C /root/results . || echo "init: the results do not fit"
$b sync
$b poweroff -f
