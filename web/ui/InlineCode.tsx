/** A text of a developer, with code between backticks as in Markdown. */
export function InlineCode({ children }: { children: string }) {
  return children.split(/`([^`]+)`/).map((part, at) =>
    // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text keep their places
    at % 2 === 0 ? part : <code key={at}>{part}</code>,
  );
}
