//! The way to a TPM: a device of the kernel, or the socket of a software TPM.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use zeroize::Zeroizing;

/// Address of a TPM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TpmAddress {
    /// The kernel's device: `/dev/tpmrm0`, whose resource manager lets others use the TPM too.
    Device(PathBuf),
    /// A software TPM at a Unix socket.
    Unix(PathBuf),
    /// A software TPM at an address of this machine.
    Tcp(SocketAddr),
}

impl fmt::Display for TpmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(path) => write!(f, "{}", path.display()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Bytes of a command or an answer at most: what every TPM of a PC takes.
const MESSAGE_MAX: usize = 4_096;
/// Tag, size and code.
pub(super) const HEADER: usize = 10;
/// A slow TPM makes a primary key in some seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) enum Connection {
    /// An answer has to be taken in one read.
    Device(File),
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connection {
    pub(super) fn open(address: &TpmAddress) -> io::Result<Self> {
        Ok(match address {
            TpmAddress::Device(path) => Self::Device(OpenOptions::new().read(true).write(true).open(path)?),
            TpmAddress::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Self::Unix(stream)
            }
            TpmAddress::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, TIMEOUT)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Self::Tcp(stream)
            }
        })
    }

    /// The answer to a command, with its header.
    pub(super) fn transact(&mut self, command: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
        match self {
            Self::Device(device) => {
                device.write_all(command)?;
                let mut answer = Zeroizing::new(vec![0; MESSAGE_MAX]);
                let count = device.read(&mut answer)?;
                answer.truncate(count);
                Ok(answer)
            }
            Self::Unix(stream) => over_stream(stream, command),
            Self::Tcp(stream) => over_stream(stream, command),
        }
    }
}

fn over_stream(stream: &mut (impl Read + Write), command: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
    stream.write_all(command)?;
    let mut answer = Zeroizing::new(vec![0; MESSAGE_MAX]);
    stream.read_exact(&mut answer[..HEADER])?;
    let size = u32::from_be_bytes([answer[2], answer[3], answer[4], answer[5]]) as usize;
    if !(HEADER..=MESSAGE_MAX).contains(&size) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer of an impossible size"));
    }
    stream.read_exact(&mut answer[HEADER..size])?;
    answer.truncate(size);
    Ok(answer)
}
