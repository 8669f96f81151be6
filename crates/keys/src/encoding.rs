//! PKCS#8, PKCS#1 and SEC 1, in PEM and DER.
