import { availableParallelism } from 'node:os';

const maxProcesses = 256;

/** What is valid, for messages about values that are not. */
export const processesRule = `auto or a number from 1 to ${maxProcesses}`;

/** The number of processes that serve: that of the text, or one for each core with `auto`. Undefined if the text is not valid. */
export function processesOf(text: string): number | undefined {
  if (text === 'auto') return Math.min(availableParallelism(), maxProcesses);
  const count = Number(text);
  return /^[1-9]\d{0,2}$/.test(text) && count <= maxProcesses ? count : undefined;
}
