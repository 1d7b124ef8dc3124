/** `trellis init`: a folder of functions to begin with. */
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { typesFor } from '../compile/check-types.ts';
import { exitCodes, readArguments } from './arguments.ts';
import { filesToBegin } from './init-files.ts';
import { own, type Surroundings } from './surroundings.ts';

const usage = `Usage: trellis init [FOLDER]

Makes a folder (./functions) with a sync, an action and an event function for the integration google-sheet, and a
tsconfig.json for your editor. Overwrites nothing: where one of its files exists, none is written.

${exitCodes}`;

/** The exit code: 1 where a file is there already. */
export async function initCommand(
  args: string[],
  { print, complain }: Pick<Surroundings, 'print' | 'complain'> = own,
): Promise<number> {
  const given = readArguments(args, { ...{ usage, print, maxPositionals: 1 }, options: {} });
  if (given === undefined) return 0;
  const [name = './functions'] = given.positionals;
  const folder = resolve(name);
  const files = Object.entries(filesToBegin(settingsFor(folder)));
  const there = files.map(([file]) => file).filter((file) => existsSync(join(folder, file)));
  if (there.length > 0) {
    complain(`Nothing was written: ${name} has ${there.join(', ')} already.`);
    return 1;
  }
  for (const [file, text] of files) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    // A file that another process has created meanwhile is not overwritten.
    await writeFile(join(folder, file), text, { flag: 'wx' });
    print(`+ ${join(name, file)}`);
  }
  print(`
Next, with TRELLIS_URL and TRELLIS_SECRET_KEY of your development environment set:

  trellis dryrun google-sheet/rows --connection ID --folder ${name}
                               run the sync here, writing nothing
  trellis dev ${name}
                               deploy at each save`);
  return 0;
}

/** What an editor needs to find what does not lie beside the folder. */
function settingsFor(folder: string): Parameters<typeof filesToBegin>[0] {
  const { paths, typeRoots } = typesFor(folder);
  const below = (path: string) => {
    const way = relative(folder, path).split(sep).join('/');
    return way.startsWith('.') ? way : `./${way}`;
  };
  const missing = Object.entries(paths).filter(([name]) => !isBeside(folder, name));
  return {
    paths: Object.fromEntries(missing.map(([name, places]) => [name, places.map(below)])),
    typeRoots: typeRoots?.map(below),
  };
}

function isBeside(folder: string, name: string): boolean {
  try {
    createRequire(join(folder, 'x.js')).resolve(`${name}/package.json`);
    return true;
  } catch {
    return false;
  }
}
