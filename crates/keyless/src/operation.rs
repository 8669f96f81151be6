//! Operations of the key service, by opcode.

use keys::{Hash, Scheme};

use crate::wire::{ErrorCode, opcode};

/// Operation that a request asks for: ping, signature, RSA decryption, sealing or unsealing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// Returns the payload unchanged.
    Ping,
    /// Creates a signature.
    Sign(Scheme),
    /// RSA decryption without padding, for TLS's RSA key exchange. Only with keys of security modules, if the operator enables it.
    RsaDecrypt,
    /// Seals the payload, such as a session ticket.
    Seal,
    /// Opens sealed data, such as a session ticket.
    Unseal,
}

/// Opcodes of all operations, with their names in metrics.
pub const OPERATIONS: [(u8, &str, Operation); 20] = [
    (opcode::PING, "ping", Operation::Ping),
    (0x01, "rsa-decrypt", Operation::RsaDecrypt),
    (0x02, "rsa-md5sha1", Operation::Sign(Scheme::RsaPkcs1(Hash::Md5Sha1))),
    (0x03, "rsa-sha1", Operation::Sign(Scheme::RsaPkcs1(Hash::Sha1))),
    (0x04, "rsa-sha224", Operation::Sign(Scheme::RsaPkcs1(Hash::Sha224))),
    (0x05, "rsa-sha256", Operation::Sign(Scheme::RsaPkcs1(Hash::Sha256))),
    (0x06, "rsa-sha384", Operation::Sign(Scheme::RsaPkcs1(Hash::Sha384))),
    (0x07, "rsa-sha512", Operation::Sign(Scheme::RsaPkcs1(Hash::Sha512))),
    (0x12, "ecdsa-md5sha1", Operation::Sign(Scheme::Ecdsa(Hash::Md5Sha1))),
    (0x13, "ecdsa-sha1", Operation::Sign(Scheme::Ecdsa(Hash::Sha1))),
    (0x14, "ecdsa-sha224", Operation::Sign(Scheme::Ecdsa(Hash::Sha224))),
    (0x15, "ecdsa-sha256", Operation::Sign(Scheme::Ecdsa(Hash::Sha256))),
    (0x16, "ecdsa-sha384", Operation::Sign(Scheme::Ecdsa(Hash::Sha384))),
    (0x17, "ecdsa-sha512", Operation::Sign(Scheme::Ecdsa(Hash::Sha512))),
    (0x18, "ed25519", Operation::Sign(Scheme::Ed25519)),
    (0x21, "seal", Operation::Seal),
    (0x22, "unseal", Operation::Unseal),
    (0x35, "pss-sha256", Operation::Sign(Scheme::RsaPss(Hash::Sha256))),
    (0x36, "pss-sha384", Operation::Sign(Scheme::RsaPss(Hash::Sha384))),
    (0x37, "pss-sha512", Operation::Sign(Scheme::RsaPss(Hash::Sha512))),
];

/// Index of each opcode in [`OPERATIONS`]; [`UNKNOWN_OPCODE`] for unknown opcodes.
const OPERATION_INDEXES: [u8; 256] = {
    let mut indexes = [UNKNOWN_OPCODE; 256];
    let mut at = 0;
    while at < OPERATIONS.len() {
        indexes[OPERATIONS[at].0 as usize] = at as u8;
        at += 1;
    }
    indexes
};
const UNKNOWN_OPCODE: u8 = u8::MAX;

/// Returns the index of a request's opcode in [`OPERATIONS`].
///
/// # Errors
/// [`ErrorCode::UnexpectedOpcode`] for opcodes of replies, [`ErrorCode::BadOpcode`] for unknown opcodes.
pub fn place(of: u8) -> Result<usize, ErrorCode> {
    match OPERATION_INDEXES[usize::from(of)] {
        UNKNOWN_OPCODE => match of {
            opcode::SUCCESS | opcode::PONG | opcode::ERROR => Err(ErrorCode::UnexpectedOpcode),
            _ => Err(ErrorCode::BadOpcode),
        },
        place => Ok(usize::from(place)),
    }
}

/// Returns the index in [`OPERATIONS`] of a signature with `scheme`.
#[must_use]
pub(crate) fn signing(scheme: Scheme) -> Option<usize> {
    OPERATIONS.iter().position(|(_, _, operation)| *operation == Operation::Sign(scheme))
}

/// Returns the opcode of a signature with `scheme`; `None` if the protocol has none.
#[must_use]
pub fn opcode_of(scheme: Scheme) -> Option<u8> {
    signing(scheme).map(|place| OPERATIONS[place].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_maps_to_an_operation_or_an_error() {
        let mut found = 0;
        for of in 0..=u8::MAX {
            match place(of) {
                Ok(place) => {
                    assert_eq!(OPERATIONS[place].0, of);
                    found += 1;
                }
                Err(ErrorCode::UnexpectedOpcode) => assert!([0xf0, 0xf2, 0xff].contains(&of), "{of:#x}"),
                Err(code) => assert_eq!(code, ErrorCode::BadOpcode, "{of:#x}"),
            }
        }
        assert_eq!(found, OPERATIONS.len());
        for unknown in [0x00, 0x08, 0x20, 0x23, 0x24, 0xf3] {
            assert_eq!(place(unknown), Err(ErrorCode::BadOpcode), "{unknown:#x}");
        }
    }
}
