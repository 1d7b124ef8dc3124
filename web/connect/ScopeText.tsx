import type { Choice } from './queries.ts';
import { useLanguage } from './texts.ts';

/** What a scope allows, in the page's language where the provider's definition has it, else in English. */
export function ScopeText({
  scope: { scope, description, translations },
}: {
  scope: Choice['scopes'][number];
}) {
  const language = useLanguage();
  const translated = translations[language];
  return <span lang={translated === undefined ? 'en' : language}>{translated ?? description ?? scope}</span>;
}
