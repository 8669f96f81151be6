//! Rules that managed certificates are held against.
