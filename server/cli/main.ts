#!/usr/bin/env node
/** The executable `trellis`. */
import { resolve } from 'node:path';
import { runCommandLine } from './run.ts';

// Without /proc, Node has only the path by which it was started, and functions have another working directory.
process.execPath = resolve(process.execPath);
process.exitCode = await runCommandLine(process.argv.slice(2));
