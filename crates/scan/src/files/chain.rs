//! Groups the certificates of a file into chains.

use super::ber::{CONTEXT_0, Elements, INTEGER, SEQUENCE};
use super::contents::{CertificateFound, Contents};

impl Contents {
    /// Returns the chains and single certificates of the file, each with the leaf first. Certificates of a chain have the same
    /// entry number.
    pub fn chains(&self) -> impl Iterator<Item = &[CertificateFound]> {
        self.certificates.chunk_by(|one, next| one.entry == next.entry)
    }

    /// Renumbers the entries, so that an issuer certificate that follows its subject gets the subject's entry number. Only order
    /// and names are compared, as in chain files of servers; signatures are verified later. Bundles of roots stay single
    /// certificates.
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

/// Returns the encoded issuer and subject of a certificate (RFC 5280 section 4.1).
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
