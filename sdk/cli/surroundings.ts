/** Where a command works: the process's own, or a test's. */
export type Surroundings = {
  env: Readonly<Record<string, string | undefined>>;
  print: (line: string) => void;
  complain: (line: string) => void;
};

export const own: Surroundings = {
  env: process.env,
  print: (line) => console.log(harmless(line)),
  complain: (line) => console.error(harmless(line)),
};

/** What providers and functions say is shown: nothing of it may move a terminal's cursor or change its colours. */
export function harmless(text: string): string {
  return text.replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g,
    (one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, '0')}`,
  );
}
