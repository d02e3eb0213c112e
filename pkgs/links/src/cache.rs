//! Ready-made answers by code.
