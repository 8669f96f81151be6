//! Revocation reasons.

use coded::coded;

coded! {
    /// CRLReason (RFC 5280 section 5.3.1). CRLs, OCSP, ACME and the database use the same numbers. Number 7 is not assigned.
    pub enum Reason: "revocation reason" in any spelling {
        /// 0: no reason is given.
        Unspecified = 0 => "unspecified",
        /// 1: the subject's key is, or may be, known to others.
        KeyCompromise = 1 => "keyCompromise",
        /// 2: a CA's key is, or may be, known to others.
        CaCompromise = 2 => "cACompromise",
        /// 3: the subject's name or other facts changed.
        AffiliationChanged = 3 => "affiliationChanged",
        /// 4: another certificate replaced this one.
        Superseded = 4 => "superseded",
        /// 5: the certificate is no longer needed.
        CessationOfOperation = 5 => "cessationOfOperation",
        /// 6: on hold, the only reason that can be withdrawn.
        CertificateHold = 6 => "certificateHold",
        /// 8: no longer on hold, or expired; in delta CRLs only.
        RemoveFromCrl = 8 => "removeFromCRL",
        /// 9: a privilege in the certificate was withdrawn.
        PrivilegeWithdrawn = 9 => "privilegeWithdrawn",
        /// 10: an attribute authority's key is, or may be, known to others.
        AaCompromise = 10 => "aACompromise",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_round_trip_through_name_code_and_json() {
        for reason in Reason::ALL {
            assert_eq!(reason.name().parse(), Ok(reason));
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
            let json = serde_json::to_string(&reason).unwrap();
            assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), reason);
        }
        assert_eq!("key-compromise".parse(), Ok(Reason::KeyCompromise));
        assert_eq!("remove_from_crl".parse(), Ok(Reason::RemoveFromCrl));
        for bad in [-1, 7, 11, 256] {
            assert_eq!(Reason::from_code(bad), None);
        }
        assert!("compromised".parse::<Reason>().is_err());
    }
}
