//! Encoding of extensions (RFC 5280 section 4.2).

use super::alternative_name::{octets, write_name};
use crate::der::{self, Writer, tag};
use crate::{BasicConstraints, GeneralName, KeyUsage, NameConstraints, Subtree, oid};

/// An extension with an unparsed value.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Extension {
    /// extnID as a dotted object identifier.
    pub oid: String,
    /// Whether a relying party that does not know the extension must reject the certificate.
    pub critical: bool,
    /// DER content of extnValue.
    pub value: Vec<u8>,
}

impl Extension {
    /// Creates any extension, not critical. `oid` is a dotted object identifier (see [`der::oid_content`]); `value` is the DER
    /// content of extnValue.
    #[must_use]
    pub fn custom(oid: impl Into<String>, value: Vec<u8>) -> Self {
        Self { oid: oid.into(), critical: false, value }
    }

    /// Sets whether a relying party that does not know the extension must reject the certificate.
    #[must_use]
    pub fn critical(mut self, is_critical: bool) -> Self {
        self.critical = is_critical;
        self
    }

    fn with_oid(id: &[u8], critical: bool, fill: impl FnOnce(&mut Writer)) -> Self {
        Self { oid: der::oid_text(id), critical, value: der::write(fill) }
    }

    fn list(id: &[u8], critical: bool, fill: impl FnOnce(&mut Writer)) -> Self {
        Self::with_oid(id, critical, |w| {
            w.sequence(fill);
        })
    }

    /// Creates subjectAltName (section 4.2.1.6), not critical. Make it [critical](Self::critical) if the subject is empty. Leaves
    /// out names that cannot be encoded, such as [`GeneralName::Other`]: see [`GeneralName::is_writable`].
    #[must_use]
    pub fn subject_alt_names(names: &[GeneralName]) -> Self {
        Self::list(oid::SUBJECT_ALT_NAME, false, |w| names.iter().for_each(|name| write_name(w, name)))
    }

    /// Creates basicConstraints (section 4.2.1.9), critical.
    #[must_use]
    pub fn basic_constraints(constraints: BasicConstraints) -> Self {
        Self::list(oid::BASIC_CONSTRAINTS, true, |w| {
            if !constraints.ca {
                return; // cA is FALSE by default, and then there is no path to limit.
            }
            w.boolean(true);
            if let Some(length) = constraints.path_len {
                w.integer(i64::from(length));
            }
        })
    }

    /// Creates keyUsage (section 4.2.1.3), critical.
    #[must_use]
    pub fn key_usage(usage: KeyUsage) -> Self {
        Self::with_oid(oid::KEY_USAGE, true, |w| {
            w.named_bits(usage.0);
        })
    }

    /// Creates extKeyUsage (section 4.2.1.12) from dotted object identifiers.
    #[must_use]
    pub fn extended_key_usage(purposes: &[String]) -> Self {
        Self::list(oid::EXTENDED_KEY_USAGE, false, |w| {
            purposes.iter().for_each(|purpose| {
                w.oid_text(purpose);
            });
        })
    }

    /// Creates subjectKeyIdentifier (section 4.2.1.2); see [`super::key_id`].
    #[must_use]
    pub fn subject_key_id(id: &[u8]) -> Self {
        Self::with_oid(oid::SUBJECT_KEY_ID, false, |w| {
            w.octets(id);
        })
    }

    /// Creates authorityKeyIdentifier (section 4.2.1.1) from the issuer's subjectKeyIdentifier.
    #[must_use]
    pub fn authority_key_id(id: &[u8]) -> Self {
        Self::list(oid::AUTHORITY_KEY_ID, false, |w| {
            w.context_primitive(0, id);
        })
    }

    /// Creates authorityInfoAccess (section 4.2.2.1): URLs of OCSP responders and of issuer certificates.
    #[must_use]
    pub fn authority_info_access(ocsp: &[String], issuers: &[String]) -> Self {
        Self::list(oid::AUTHORITY_INFO_ACCESS, false, |w| {
            for (method, urls) in [(oid::ACCESS_OCSP, ocsp), (oid::ACCESS_CA_ISSUERS, issuers)] {
                for url in urls {
                    w.sequence(|w| {
                        w.element(tag::OID, method).context_primitive(URI, url.as_bytes());
                    });
                }
            }
        })
    }

    /// Creates cRLDistributionPoints (section 4.2.1.13), one point for each URL.
    #[must_use]
    pub fn crl_distribution_points(urls: &[String]) -> Self {
        Self::list(oid::CRL_DISTRIBUTION_POINTS, false, |w| distribution_points(w, urls))
    }

    /// Creates freshestCRL (section 4.2.1.15): locations of delta CRLs, one point for each URL.
    #[must_use]
    pub fn freshest_crl(urls: &[String]) -> Self {
        Self::list(oid::FRESHEST_CRL, false, |w| distribution_points(w, urls))
    }

    /// Creates certificatePolicies (section 4.2.1.4) from dotted object identifiers, without qualifiers.
    #[must_use]
    pub fn certificate_policies(policies: &[String]) -> Self {
        Self::list(oid::CERTIFICATE_POLICIES, false, |w| {
            for policy in policies {
                w.sequence(|w| {
                    w.oid_text(policy);
                });
            }
        })
    }

    /// Creates nameConstraints (section 4.2.1.10), critical. Leaves out [`Subtree::Other`], which cannot be encoded: the caller
    /// must reject it first.
    #[must_use]
    pub fn name_constraints(constraints: &NameConstraints) -> Self {
        Self::list(oid::NAME_CONSTRAINTS, true, |w| {
            for (number, subtrees) in [(0, &constraints.permitted), (1, &constraints.excluded)] {
                if !subtrees.is_empty() {
                    w.context(number, |w| subtrees.iter().for_each(|subtree| write_subtree(w, subtree)));
                }
            }
        })
    }

    /// Creates the TLS feature status_request (RFC 7633): the server must staple an OCSP response.
    #[must_use]
    pub fn must_staple() -> Self {
        const STATUS_REQUEST: i64 = 5;
        Self::list(oid::TLS_FEATURE, false, |w| {
            w.integer(STATUS_REQUEST);
        })
    }

    /// Creates id-pkix-ocsp-nocheck (RFC 6960 section 4.2.2.2.1): clients need not check whether this responder's certificate is
    /// revoked.
    #[must_use]
    pub fn ocsp_no_check() -> Self {
        Self::with_oid(oid::OCSP_NO_CHECK, false, |w| {
            w.null();
        })
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.sequence(|w| {
            w.oid_text(&self.oid);
            if self.critical {
                w.boolean(true);
            }
            w.octets(&self.value);
        });
    }
}

/// The tag number of uniformResourceIdentifier.
const URI: u8 = 6;

fn distribution_points(w: &mut Writer, urls: &[String]) {
    for url in urls {
        w.sequence(|w| {
            w.context(0, |w| {
                w.context(0, |w| {
                    w.context_primitive(URI, url.as_bytes());
                });
            });
        });
    }
}

fn write_subtree(w: &mut Writer, subtree: &Subtree) {
    if matches!(subtree, Subtree::Other) {
        return;
    }
    w.sequence(|w| {
        match subtree {
            Subtree::Dns(base) => w.context_primitive(2, base.as_bytes()),
            Subtree::Email(base) => w.context_primitive(1, base.as_bytes()),
            Subtree::Uri(base) => w.context_primitive(6, base.as_bytes()),
            Subtree::Ip(net, mask) => w.context_primitive(7, &[octets(*net), octets(*mask)].concat()),
            Subtree::Directory(name) => w.context(4, |w| {
                w.raw(name);
            }),
            Subtree::Other => w,
        };
    });
}
