#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Virtual threads came with 21.
version=$("${JAVA_HOME:+$JAVA_HOME/bin/}javac" -version 2>&1 | sed -nE 's/^javac ([0-9]+).*/\1/p')
[ "${version:-0}" -ge 21 ] || { echo "a JDK of 21 or later is wanted, this is ${version:-none}"; exit 1; }
