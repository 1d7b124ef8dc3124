/** What is wrong with a file of functions. `file` is below their folder; line and column count from 1. */
export type Fault = { file: string; line?: number; column?: number; message: string };

/** As editors and terminals link it. */
export function shown({ file, line, column, message }: Fault): string {
  return [file, line, column, ` ${message}`].filter((part) => part !== undefined).join(':');
}
