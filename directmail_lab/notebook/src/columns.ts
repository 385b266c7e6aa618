/* The columns of the list, and how they format their values. */

import { formatCount } from "./dom";
import type { Row } from "./protocol";

export const SYMBOLS: Record<string, string> = { refused: "×", failed: "▲", aborted: "■", replayed: "↺" };

export const isMarked = (row: Row, mark: string) => (mark === "replayed" ? row.replayed : row.mark === mark);

export const formatMs = (ms: number | null) => (ms === null ? "" : ms < 100 ? ms.toFixed(1) : formatCount(Math.round(ms)));

export const formatTime = (ms: number | null, start: number) =>
  ms === null ? "" : new Date(ms).toISOString().slice(start, 19).replace("T", " ");

const formatStatus = ({ status, mark, replayed }: Row) =>
  mark === "aborted" ? "aborted" : `${status ?? (mark === "failed" ? "none" : "")} ${SYMBOLS[mark] ?? ""}${replayed ? SYMBOLS.replayed : ""}`.trim();

export interface Column {
  name: string;
  heading: string;
  text: (row: Row, spansDays: boolean) => string;
  key: (row: Row, place: number) => string | number | null;
  /** The list shows this column only if it is at least this wide, in pixels. */
  room: number;
}

const column = (name: string, heading: string, text: Column["text"], key: Column["key"], room = 0): Column => ({ name, heading, text, key, room });

export const COLUMNS = [
  column("number", "#", (row) => String(row.number), (_, place) => place),
  column("time", "Time (UTC)", (row, spansDays) => formatTime(row.time, spansDays ? 5 : 11), (row) => row.time, 560),
  column("method", "Method", (row) => row.method, (row) => row.method),
  column("path", "Path", (row) => row.path, (row) => row.path),
  column("status", "Status", formatStatus, (row) => row.status),
  column("left", "Left", (row) => formatCount(row.remaining), (row) => row.remaining, 380),
  column("elapsed", "ms", (row) => formatMs(row.ms), (row) => row.ms, 440),
  column("bytes", "Bytes", (row) => formatCount(row.bytes), (row) => row.bytes, 560),
  column("timeline", "Timeline", (row) => (row.time === null ? "" : " "), (row) => row.time, 680),
];
