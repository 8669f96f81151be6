//! Keys at rest, and signers made from them.
