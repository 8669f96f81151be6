//! From the inventory into management.
