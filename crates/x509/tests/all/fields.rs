//! What certificates say, as openssl and x509-parser read it, too.
