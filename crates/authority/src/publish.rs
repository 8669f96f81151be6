//! CRLs, OCSP and issuer certificates over HTTP.
