//! Which certificates of a file belong together.

use super::ber::{CONTEXT_0, Elements, INTEGER, SEQUENCE};
use super::contents::{CertificateFound, Contents};

impl Contents {
    /// The chains and single certificates of the file, each with the holder's own first: those that
    /// share an entry.
    pub fn chains(&self) -> impl Iterator<Item = &[CertificateFound]> {
        self.certificates.chunk_by(|one, next| one.entry == next.entry)
    }

    /// Numbers entries again, so that certificates that follow their subject are of its entry. Only
    /// order and names count, as in the files servers are given; what the signatures say is for the
    /// verifier to find. Bundles of roots stay single: a root is followed by nobody.
    pub(super) fn join_chains(&mut self) {
        let (mut entry, mut index) = (0, 0);
        let mut awaited: Option<Vec<u8>> = None;
        for (position, found) in self.certificates.iter_mut().enumerate() {
            let names = names(&found.der);
            let follows = names.is_some_and(|(_, subject)| awaited.as_deref() == Some(subject));
            if follows {
                index += 1;
            } else if position > 0 {
                (entry, index) = (entry + 1, 0);
            }
            awaited = names.filter(|(issuer, subject)| issuer != subject).map(|(issuer, _)| issuer.to_vec());
            (found.entry, found.index) = (entry, index);
        }
    }
}

/// Issuer and subject of a certificate (RFC 5280 section 4.1), as encoded.
fn names(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let certificate = Elements::new(der).expect(SEQUENCE)?;
    let mut fields = certificate.inside().expect(SEQUENCE)?.inside();
    let _version = fields.expect(CONTEXT_0);
    fields.expect(INTEGER)?;
    let _algorithm = fields.expect(SEQUENCE)?;
    let issuer = fields.expect(SEQUENCE)?;
    let _validity = fields.expect(SEQUENCE)?;
    let subject = fields.expect(SEQUENCE)?;
    Some((issuer.whole, subject.whole))
}
