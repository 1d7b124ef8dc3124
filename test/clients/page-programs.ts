/** The programs of docs/guides/provider-clients.md, as they stand there, and what the page says that they print. */

import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { blocksOf } from '../docs/blocks.ts';

export type PageProgram = {
  language: 'js' | 'python';
  /** The heading above it. */
  heading: string;
  text: string;
  /** What it prints, and what it prints where the connection is dead. */
  alive: string;
  dead: string;
};

export const page = 'docs/guides/provider-clients.md';

/** Behind each program stand its two outputs. */
export function pagePrograms(text: string): PageProgram[] {
  const blocks = blocksOf(page);
  const headings = [...text.matchAll(/^#{2,3} (.+)$/gm)].map(({ 1: heading = '', index }) => ({
    heading,
    line: text.slice(0, index).split('\n').length,
  }));
  return blocks.flatMap(({ language, text: program, line }, at) => {
    if (language !== 'js' && language !== 'python') return [];
    const [alive, dead] = [blocks[at + 1], blocks[at + 2]];
    if (alive?.language !== '' || dead?.language !== '') throw new Error(`${page}:${line} has no outputs`);
    const heading = headings.findLast((one) => one.line < line)?.heading ?? '';
    return [{ language, heading, text: program, alive: alive.text, dead: dead.text }];
  });
}

type Ended = { code: number; stdout: string; stderr: string };

/** Runs a program in a directory in which it finds what it imports. `command` is its interpreter. */
export async function runProgram(
  { language, text }: Pick<PageProgram, 'language' | 'text'>,
  { directory, command, env }: { directory: string; command: string; env: Record<string, string> },
): Promise<Ended> {
  const file = join(directory, `program-${crypto.randomUUID()}.${language === 'js' ? 'mjs' : 'py'}`);
  await writeFile(file, text);
  return new Promise((resolve, reject) => {
    const options = { env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env }, timeout: 60_000 };
    execFile(command, [file], options, (error, stdout, stderr) => {
      const code = error === null ? 0 : error.code;
      if (typeof code === 'number') resolve({ code, stdout, stderr });
      else reject(error as Error);
    });
  });
}
