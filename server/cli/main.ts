#!/usr/bin/env node
/** The executable `trellis`. */
import { runCommandLine } from './run.ts';

process.exitCode = await runCommandLine(process.argv.slice(2));
