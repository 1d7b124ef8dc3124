/** Where a command works: the process's own, or a test's. */
export type Surroundings = {
  env: Readonly<Record<string, string | undefined>>;
  print: (line: string) => void;
  complain: (line: string) => void;
};

export const own: Surroundings = {
  env: process.env,
  print: (line) => console.log(line),
  complain: (line) => console.error(line),
};
