//! The only file with calls that differ between operating systems, each with a portable fallback:
//! sending on a socket, sending a file, positioned vectored writes, preallocation, syncs of a whole
//! file system, process locks, free space.
//! Threads: the functions have no state.
//! Not promised: that [`allocate_ahead`] reserves disk. Some file systems do not support it.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Sends `bufs` on a socket that does not block; `more` says that more follows at once. Returns
/// the bytes taken.
pub fn send(socket: &impl AsFd, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
    #[cfg(target_os = "linux")]
    let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
    #[cfg(not(target_os = "linux"))]
    let (flags, _) = (SendFlags::empty(), more);
    Ok(match bufs {
        [buf] => send(socket, buf, flags)?,
        _ => sendmsg(socket, bufs, &mut SendAncillaryBuffer::default(), flags)?,
    })
}

/// A TCP socket that does not block and that no child process inherits.
pub fn tcp_socket(ipv6: bool) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketType, ipproto};
    let family = if ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
    #[cfg(target_os = "linux")]
    {
        use rustix::net::{SocketFlags, socket_with};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let socket = rustix::net::socket(family, SocketType::STREAM, Some(ipproto::TCP))?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(socket)
    }
}

/// Sends `len` bytes of `file` from `position` on to a socket that does not block. Returns the
/// bytes taken; 0 if the file ends before `position`.
#[cfg(target_os = "linux")]
pub fn sendfile(
    socket: &impl AsFd,
    file: &File,
    mut position: u64,
    len: usize,
) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(socket, file, Some(&mut position), len)?)
}

/// Sends `len` bytes of `file` from `position` on through memory.
#[cfg(not(target_os = "linux"))]
pub fn sendfile(socket: &impl AsFd, file: &File, position: u64, len: usize) -> io::Result<usize> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; len.min(256 << 10)];
    let count = file.read_at(&mut bytes, position)?;
    match bytes.get(..count) {
        Some(bytes) if count > 0 => send(socket, &[IoSlice::new(bytes)], false),
        _ => Ok(0),
    }
}

/// Reads into `buf` what the page cache has from `position` on; how many bytes came, 0 at the
/// file's end. `WouldBlock`: the disk would be asked. `Unsupported`: the system cannot tell.
#[cfg(target_os = "linux")]
pub fn read_cached(file: &File, buf: &mut [u8], position: u64) -> io::Result<usize> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let mut bufs = [io::IoSliceMut::new(buf)];
    match preadv2(file, &mut bufs, position, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Err(io::ErrorKind::Unsupported.into())
        }
        other => Ok(other?),
    }
}

/// Other systems do not say what their page cache has.
#[cfg(not(target_os = "linux"))]
pub fn read_cached(_file: &File, _buf: &mut [u8], _position: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Writes all of `bufs`, one after the other, at `position`; retries short writes.
/// Errors: as `pwritev(2)`; what was written before an error stays written.
pub fn write_vectored_at(file: &File, bufs: &[&[u8]], mut position: u64) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
    let mut left = slices.as_mut_slice();
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match gather_write(file, left, position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                position += count as u64;
                IoSlice::advance_slices(&mut left, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn gather_write(file: &File, bufs: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
    Ok(rustix::io::pwritev(file, bufs, position)?)
}

#[cfg(not(target_os = "linux"))]
fn gather_write(file: &File, bufs: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
    use std::os::unix::fs::FileExt;
    bufs.first().map_or(Ok(0), |buf| file.write_at(buf, position))
}

/// Reserves `len` bytes of disk from `from` on without changing the file's size.
#[cfg(target_os = "linux")]
pub fn allocate_ahead(file: &File, from: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, from, len)?)
}

/// Reserves nothing: this system cannot do so without changing the file's size.
#[cfg(not(target_os = "linux"))]
pub fn allocate_ahead(_file: &File, _from: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes everything durable that was written to the file system of `file`: data, sizes and names.
/// It also fails if the disk refused a write since `file` was opened. `Unsupported`: this system or
/// file system does not promise both.
#[cfg(target_os = "linux")]
pub fn sync_file_system(file: &File) -> io::Result<()> {
    // ext4, xfs, btrfs, f2fs, tmpfs. Others may sync nothing (FUSE) or lose errors (overlayfs).
    const KNOWN: [u32; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x0102_1994];
    let kind = rustix::fs::fstatfs(file)?.f_type;
    let is_known = u32::try_from(kind).is_ok_and(|kind| KNOWN.contains(&kind));
    if !is_known || kernel() < (5, 8) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(rustix::fs::syncfs(file)?)
}

/// Other systems promise nothing here.
#[cfg(not(target_os = "linux"))]
pub fn sync_file_system(_file: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The kernel's version; `syncfs` returns errors since 5.8.
#[cfg(target_os = "linux")]
fn kernel() -> (u32, u32) {
    let names = rustix::system::uname();
    let release = names.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Takes the whole file's process lock (`fcntl`, as Java's `FileChannel.tryLock`); false if another
/// process holds it. The lock goes when *any* descriptor of the file is closed in this process.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::fcntl_lock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The free and the total bytes of the file system that holds `path`. Free are those that this user
/// may take.
pub fn disk_space(path: &Path) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::statvfs(path)?;
    Ok((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}

/// How many descriptors the process may have open now (`ulimit -n`).
pub fn descriptor_limit() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// How many of `limit` descriptors connections do not get: an eighth, at most 64.
pub const fn reserved_descriptors(limit: u64) -> u64 {
    if limit / 8 < 64 { limit / 8 } else { 64 }
}

/// Whether a descriptor is one of the last that the process may have. A system returns the lowest
/// free number: when it returns such a one, all lower numbers are in use.
pub fn is_descriptor_reserved(file: &impl AsFd) -> bool {
    use std::os::fd::AsRawFd;
    let limit = descriptor_limit();
    let number = u64::try_from(file.as_fd().as_raw_fd()).unwrap_or(0);
    number >= limit - reserved_descriptors(limit)
}

/// Whether the next descriptor would be reserved, or there is none; `like` is any open file.
pub fn is_next_descriptor_reserved(like: &impl AsFd) -> bool {
    rustix::io::fcntl_dupfd_cloexec(like, 0).map_or(true, |next| is_descriptor_reserved(&next))
}

/// Whether an I/O error says that there is no room (ENOSPC, EDQUOT), which may pass by itself.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether an I/O error says that this process or system ran out of descriptors.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(rustix::io::Errno::MFILE.raw_os_error())
        || code == Some(rustix::io::Errno::NFILE.raw_os_error())
}
