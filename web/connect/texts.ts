import { createContext, useContext } from 'react';
import { de } from './texts/de.ts';
import { en } from './texts/en.ts';
import { es } from './texts/es.ts';
import { fr } from './texts/fr.ts';
import { ja } from './texts/ja.ts';

/** What the page says, in each language. A text that one of them lacks is a type error. */
export type TextKey = keyof typeof en;
export type Texts = Record<TextKey, string>;

const all = { en, de, fr, es, ja } satisfies Record<string, Texts>;
export type Language = keyof typeof all;
export const languages = Object.keys(all) as Language[];
/** What each calls itself. */
export const languageNames: Record<Language, string> = {
  en: 'English',
  de: 'Deutsch',
  fr: 'Français',
  es: 'Español',
  ja: '日本語',
};

/** Puts values in for `{name}`. */
export type Say = (key: TextKey, values?: Record<string, string>) => string;

/** `appName`: what the application calls itself, if it does. */
export function sayIn(language: Language, appName?: string | null): Say {
  const texts: Texts = all[language];
  const app = appName ?? texts.theApplication;
  return (key, values = {}) => {
    const known: Record<string, string> = { app, ...values };
    const said = texts[key].replace(/\{(\w+)\}/g, (whole, name: string) => known[name] ?? whole);
    // A sentence may begin with what is no name.
    const isCommon = !appName && texts[key].startsWith('{app}');
    return isCommon ? said.charAt(0).toUpperCase() + said.slice(1) : said;
  };
}

export const LanguageContext = createContext<Language>('en');
export const useLanguage = (): Language => useContext(LanguageContext);

export const SayContext = createContext<Say>(sayIn('en'));
export const useSay = (): Say => useContext(SayContext);
