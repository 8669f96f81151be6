//! Messages on the socket: a JSON header and the raw document to sign, each preceded by its length.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use x509::crl::Crl;

/// Maximum bytes of a header. A request with 2,000 names has a header of 100,000 bytes.
const HEADER_MAX: usize = 1 << 20;
/// Maximum bytes of a document: the largest CRL.
const BODY_MAX: usize = Crl::DER_MAX;
/// Bytes of both lengths, 4 each, big-endian.
const LENGTHS_BYTES: usize = 8;

/// The lengths at the start of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    header: usize,
    pub(crate) body: usize,
}

/// Waits for a message and returns its lengths; `None` when the peer has closed the connection.
pub(crate) async fn lengths(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Lengths>> {
    let mut bytes = [0; LENGTHS_BYTES];
    if stream.read(&mut bytes[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut bytes[1..]).await?;
    let length = |at: usize| bytes[at..at + 4].iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
    let lengths = Lengths { header: length(0), body: length(4) };
    if lengths.header > HEADER_MAX || lengths.body > BODY_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    Ok(Some(lengths))
}

/// Reads the message with these lengths.
pub(crate) async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    lengths: Lengths,
) -> io::Result<(T, Vec<u8>)> {
    let mut header = vec![0; lengths.header];
    stream.read_exact(&mut header).await?;
    let mut body = vec![0; lengths.body];
    stream.read_exact(&mut body).await?;
    let header = serde_json::from_slice(&header)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    Ok((header, body))
}

pub(crate) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    header: &impl Serialize,
    body: &[u8],
) -> io::Result<()> {
    let header = serde_json::to_vec(header)?;
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput);
    let mut bytes = Vec::with_capacity(LENGTHS_BYTES + header.len());
    bytes.extend(length(&header)?.to_be_bytes());
    bytes.extend(length(body)?.to_be_bytes());
    bytes.extend(header);
    stream.write_all(&bytes).await?;
    stream.write_all(body).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn message_round_trips() {
        let mut wire = Vec::new();
        write(&mut wire, &"header", b"body").await.unwrap();
        let mut read_from = wire.as_slice();
        let found = lengths(&mut read_from).await.unwrap().unwrap();
        let (header, body): (String, Vec<u8>) = read(&mut read_from, found).await.unwrap();
        assert_eq!((header.as_str(), body.as_slice()), ("header", &b"body"[..]));
        assert!(lengths(&mut read_from).await.unwrap().is_none());
        assert!(lengths(&mut &wire[..3]).await.is_err());
    }

    #[tokio::test]
    async fn excessive_length_is_rejected_before_allocation() {
        for wire in [[0xff; 8], [0, 0, 0, 1, 0xff, 0, 0, 0]] {
            let error = lengths(&mut &wire[..]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
