//! Transport to a TPM: a kernel device, or the socket of a software TPM.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use zeroize::Zeroizing;

/// Address of a TPM: a kernel device, a Unix socket or a TCP address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TpmAddress {
    /// Kernel device, usually `/dev/tpmrm0`. Its resource manager allows other processes to use the TPM too.
    Device(PathBuf),
    /// Unix socket of a software TPM.
    Unix(PathBuf),
    /// TCP address of a software TPM.
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

/// Maximum bytes of a command or a response. Every TPM of a PC supports this size.
const MESSAGE_MAX: usize = 4_096;
/// Bytes of the header: tag, size and code.
pub(super) const HEADER: usize = 10;
/// Timeout of a command. A slow TPM takes a few seconds to create a primary key.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) enum Connection {
    /// A kernel device. A response must be read in a single read call.
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

    /// Sends a command, and returns the response with its header.
    pub(super) fn transact(&mut self, command: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
        match self {
            Self::Device(device) => {
                device.write_all(command)?;
                let mut answer = Zeroizing::new(vec![0; MESSAGE_MAX]);
                let count = device.read(&mut answer)?;
                answer.truncate(count);
                Ok(answer)
            }
            Self::Unix(stream) => transmit_over_stream(stream, command),
            Self::Tcp(stream) => transmit_over_stream(stream, command),
        }
    }
}

fn transmit_over_stream(stream: &mut (impl Read + Write), command: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
    stream.write_all(command)?;
    let mut answer = Zeroizing::new(vec![0; MESSAGE_MAX]);
    stream.read_exact(&mut answer[..HEADER])?;
    let size = u32::from_be_bytes([answer[2], answer[3], answer[4], answer[5]]) as usize;
    if !(HEADER..=MESSAGE_MAX).contains(&size) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the TPM response has an invalid size"));
    }
    stream.read_exact(&mut answer[HEADER..size])?;
    answer.truncate(size);
    Ok(answer)
}
