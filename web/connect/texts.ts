import { createContext, useContext } from 'react';
import { ar } from './texts/ar.ts';
import { de } from './texts/de.ts';
import { en } from './texts/en.ts';
import { es } from './texts/es.ts';
import { fr } from './texts/fr.ts';
import { ja } from './texts/ja.ts';

/** The texts of the page in each language. A missing text is a type error. */
export type TextKey = keyof typeof en;
export type Texts = Record<TextKey, string>;

const all = { en, de, fr, es, ja, ar } satisfies Record<string, Texts>;
export type Language = keyof typeof all;
export const languages = Object.keys(all) as Language[];
/** The name of each language in itself. */
export const languageNames: Record<Language, string> = {
  en: 'English',
  de: 'Deutsch',
  fr: 'Français',
  es: 'Español',
  ja: '日本語',
  ar: 'العربية',
};

export const directionOf = (language: Language): 'ltr' | 'rtl' => (language === 'ar' ? 'rtl' : 'ltr');

/** Replaces `{name}` by values. */
export type Translate = (key: TextKey, values?: Record<string, string>) => string;

/** `appName`: the name of the application, if it is set. `own`: texts of the environment in place of those of the page. */
export function translatorFor(
  language: Language,
  { appName, own }: { appName?: string | null; own?: Partial<Texts> | undefined } = {},
): Translate {
  const texts: Texts = { ...all[language], ...own };
  const app = appName ?? texts.theApplication;
  return (key, values = {}) => {
    const known: Record<string, string> = { app, ...values };
    const text = texts[key].replace(/\{(\w+)\}/g, (whole, name: string) => known[name] ?? whole);
    // A common noun at the start of a sentence is capitalized.
    const isCommon = !appName && texts[key].startsWith('{app}');
    return isCommon ? text.charAt(0).toUpperCase() + text.slice(1) : text;
  };
}

export const LanguageContext = createContext<Language>('en');
export const useLanguage = (): Language => useContext(LanguageContext);

/** The text of the page itself. */
export const textIn = (language: Language, key: TextKey): string => all[language][key];
export const textKeys = Object.keys(en) as TextKey[];

export const TranslateContext = createContext<Translate>(translatorFor('en'));
export const useTranslate = (): Translate => useContext(TranslateContext);
