//! A pickle virtual machine that executes nothing: instructions in, inert objects out.
