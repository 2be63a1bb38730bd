//! The only file with calls that differ between systems, each with a portable fallback: sending on a
//! socket, and from a file to a socket.
//! Threads: every function is free of state.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

/// Sends `bufs` on a socket that does not block; `more` says that more follows at once. Returns
/// the bytes taken.
pub fn send(socket: &impl AsFd, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
    let mut flags = SendFlags::NOSIGNAL;
    if more && cfg!(target_os = "linux") {
        flags |= SendFlags::from_bits_retain(MSG_MORE);
    }
    Ok(match bufs {
        [buf] => send(socket, buf, flags)?,
        _ => sendmsg(socket, bufs, &mut SendAncillaryBuffer::default(), flags)?,
    })
}

/// Linux's `MSG_MORE`, which other systems have no bit for.
const MSG_MORE: u32 = 0x8000;

/// Sends `len` bytes of `file` from `position` on to a socket that does not block. Returns the
/// bytes taken; 0 where the file ends before `position`.
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
