/** Completion scripts for shells. They are written from the table of commands and do not run `trellis`. */
import { type AnyCommand, commandsOf, pathOf } from './commands.ts';

type Word = { word: string; description: string };
/** What can follow a command, by its name without `trellis`: ` key create`, or an empty string for `trellis` itself. */
type Place = {
  at: string;
  words: Word[];
  /** Options that take a value, with the values that are known. */
  valued: { option: string; choices: readonly string[] }[];
  /** Whether an argument may be the name of a file. */
  takesFiles: boolean;
};

/** Returns the script for a shell. Source it after the shell's own completion was loaded. */
export function completionScript(program: AnyCommand, shell: 'bash' | 'zsh' | 'fish'): string {
  const places = commandsOf(program).map(placeOf);
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](places);
}

function placeOf(command: AnyCommand): Place {
  const help = command.createHelp();
  const options = help.visibleOptions(command);
  const commands = help.visibleCommands(command);
  return {
    at: pathOf(command).replace(/^\S+/, ''),
    words: [
      ...commands.map((one) => ({ word: one.name(), description: help.subcommandDescription(one) })),
      ...command.registeredArguments.flatMap(({ argChoices = [], description }) =>
        argChoices.map((word) => ({ word, description })),
      ),
      ...options.map((one) => ({ word: one.long ?? one.flags, description: one.description })),
    ],
    takesFiles: command.registeredArguments.some(({ argChoices }) => argChoices === undefined),
    valued: options
      .filter(({ required }) => required)
      .map(({ long, flags, argChoices = [] }) => ({ option: long ?? flags, choices: argChoices })),
  };
}

/** For bash and zsh: sets `at` to the command before the cursor, and runs the `set` line of the words that can follow. */
function shellBody(places: readonly Place[], { set }: { set: (words: readonly Word[]) => string }): string {
  const valued = places.flatMap((place) =>
    place.valued.map(({ option, choices }) => ({ at: quote(`${place.at} ${option}`), choices })),
  );
  const anyValue = valued.filter(({ choices }) => choices.length === 0).map(({ at }) => at);
  const fewValues = valued
    .filter(({ choices }) => choices.length > 0)
    .map(({ at, choices }) => `    ${at}) ${set(choices.map((word) => ({ word, description: '' })))} ;;\n`);
  return `  for word in "\${before[@]}"; do
    case "$at $word" in
      ${placesBelow(places).map(quote).join(' | ')}) at="$at $word" ;;
    esac
  done
  case "$at $word" in
    ${anyValue.join(' | ')}) ;;
${fewValues.join('')}    *) case "$at" in
${places.map(({ at, words }) => `      ${quote(at)}) ${set(words)} ;;`).join('\n')}
    esac ;;
  esac`;
}

function bashScript(places: readonly Place[]): string {
  const set = (words: readonly Word[]) => `words=${quote(words.map(({ word }) => word).join(' '))}`;
  return `_trellis() {
  local at= word= words= before=("\${COMP_WORDS[@]:1:COMP_CWORD-1}")
${shellBody(places, { set })}
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _trellis trellis`;
}

function zshScript(places: readonly Place[]): string {
  const described = ({ word, description }: Word) => quote(`${word}:${description}`);
  const set = (words: readonly Word[]) => `candidates=(${words.map(described).join(' ')})`;
  return `_trellis() {
  local at= word= candidates=() before=("\${(@)words[2,CURRENT-1]}")
${shellBody(places, { set })}
  (( $#candidates )) && _describe trellis candidates || _files
}
compdef _trellis trellis`;
}

function fishScript(places: readonly Place[]): string {
  const lines = places.flatMap(({ at, words, valued, takesFiles }) =>
    words.map(({ word, description }) => {
      const line = `complete -c trellis -n ${fishQuote(`__trellis_at ${fishQuote(at)}`)}`;
      const about = `-d ${fishQuote(description)}`;
      if (!word.startsWith('--')) return `${line}${takesFiles ? '' : ' -f'} -a ${word} ${about}`;
      const choices = valued.find(({ option }) => option === word)?.choices;
      const value =
        choices === undefined ? '' : choices.length > 0 ? ` -x -a ${fishQuote(choices.join(' '))}` : ' -r';
      return `${line} -l ${word.slice(2)}${value} ${about}`;
    }),
  );
  return `function __trellis_at
  set -l at ''
  for word in (commandline -opc)
    contains -- "$at $word" ${placesBelow(places).map(fishQuote).join(' ')}; and set at "$at $word"
  end
  test "$at" = "$argv[1]"
end
${lines.join('\n')}`;
}

function placesBelow(places: readonly Place[]): string[] {
  return places.map(({ at }) => at).filter((at) => at !== '');
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function fishQuote(text: string): string {
  return `'${text.replaceAll(/['\\]/g, '\\$&')}'`;
}
